-- ARGV: limit, ring-again milliseconds. An episode stays here until it is claimed, so a lost doorbell rings again.
-- Returns the episodes as one text, a line each: a client reads that many times faster than a list.
if not goes_on() then return '' end
local t = now()
local room = room_to_ring(t)
local limit = math.min(tonumber(ARGV[1]), room)
if limit <= 0 then return '' end
local ids = redis.call('ZRANGEBYSCORE', key('due'), '-inf', t, 'LIMIT', 0, limit)
local again = string.format('%d', t + ARGV[2])
for first = 1, #ids, 1000 do
  local scores = {}
  for i = first, math.min(first + 999, #ids) do
    scores[#scores + 1], scores[#scores + 2] = again, ids[i]
  end
  redis.call('ZADD', key('due'), unpack(scores))
  if room < math.huge then redis.call('ZADD', key('rung'), unpack(scores)) end
end
return table.concat(ids, '\n')
