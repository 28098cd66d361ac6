-- ARGV: episodes of one purpose that may wait in Redis. Returns {batch, start, count, size}: which groups to enter next.
local out = {}
if not goes_on() then return out end
for _, purpose in ipairs({ 'train', 'eval' }) do
  local pending = tonumber(redis.call('HGET', KEYS[1], 'pending:' .. purpose) or 0)
  local room = ARGV[1] - (tonumber(redis.call('HGET', key('counts'), purpose .. ':queued') or 0) - pending)
  -- Not for every episode that has ended: the object store is read for many at once.
  if pending > 0 and room >= ARGV[1] / 2 then
    for _, batch in ipairs(redis.call('LRANGE', key('lane:' .. purpose), 0, 63)) do
      local upload = cjson.decode(redis.call('HGET', key('uploads'), batch))
      local entered = tonumber(redis.call('HGET', key('entered'), batch) or 0)
      local count = math.min(upload.groups - entered, math.ceil(room / upload.size))
      out[#out + 1] = { batch, entered, count, upload.size }
      room = room - count * upload.size
      if room <= 0 then break end
    end
  end
end
return out
