-- Ends a run for good. What was never entered is cancelled here; the rest by `expire`, a part at a time.
local state = redis.call('HGET', KEYS[1], 'state')
if state == 'cancelled' then return 0 end
redis.call('HSET', KEYS[1], 'state', 'cancelled')
for _, purpose in ipairs({ 'train', 'eval' }) do
  local pending = tonumber(redis.call('HGET', KEYS[1], 'pending:' .. purpose) or 0)
  if pending > 0 then
    redis.call('HSET', KEYS[1], 'pending:' .. purpose, 0)
    redis.call('HINCRBY', KEYS[1], 'never_entered:' .. purpose, pending)
    redis.call('HINCRBY', key('counts'), purpose .. ':queued', -pending)
    redis.call('HINCRBY', key('counts'), purpose .. ':cancelled', pending)
  end
end
redis.call('DEL', key('lane:train'), key('lane:eval'), key('waiting'), key('eval_versions'))
emit('kind', 'run', 'state', 'cancelled')
return 1
