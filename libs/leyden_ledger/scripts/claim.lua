-- ARGV: episode, worker, lease milliseconds, claim. The new attempt's number is the fencing token.
-- Not before it is due: a doubled doorbell must not cut a back-off short, nor start a group that is held back.
local id = ARGV[1]
local e = episode_key(id)
local f = redis.call('HMGET', e, 'state', 'claim', 'attempt', 'purpose', 'task')
local function granted(attempt)
  local group = group_of(id)
  local ref = redis.call('HGET', group_key(group), 'task_ref')
  return { attempt, group, f[4], ref, card(group).version or '', f[5] }
end
-- The same claim again: the first answer was lost on its way.
if f[1] == 'running' and f[2] == ARGV[4] then return granted(tonumber(f[3])) end
if f[1] ~= 'queued' or not goes_on() or not redis.call('ZSCORE', key('due'), id) then return false end
local most = redis.call('HGET', KEYS[1], 'max_running')
if most and redis.call('ZCARD', key('leases')) >= tonumber(most) then
  redis.call('ZREM', key('rung'), id)
  redis.call('ZADD', key('due'), now() + 200, id)
  return false
end
redis.call('HDEL', e, 'version')
move(id, 'queued', 'running')
local attempt = redis.call('HINCRBY', e, 'attempt', 1)
redis.call('HSET', e, 'worker', ARGV[2], 'calls', 0, 'claim', ARGV[4])
redis.call('ZADD', key('leases'), now() + ARGV[3], id)
return granted(attempt)
