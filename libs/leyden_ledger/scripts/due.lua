-- ARGV: limit, ring-again milliseconds. An episode stays here until it is claimed, so a lost doorbell rings again.
if not goes_on() then return {} end
local t = now()
local room = room_to_ring(t)
local limit = math.min(tonumber(ARGV[1]), room)
if limit <= 0 then return {} end
local ids = redis.call('ZRANGEBYSCORE', key('due'), '-inf', t, 'LIMIT', 0, limit)
for _, id in ipairs(ids) do
  redis.call('ZADD', key('due'), t + ARGV[2], id)
  if room < math.huge then redis.call('ZADD', key('rung'), t + ARGV[2], id) end
end
return ids
