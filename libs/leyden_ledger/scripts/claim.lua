-- ARGV: episode, worker, lease milliseconds. The new attempt's number is the fencing token.
-- Not before it is due: a doubled doorbell must not cut a back-off short, nor start a group that is held back.
local id = ARGV[1]
if get(id, 'state') ~= 'queued' or not redis.call('ZSCORE', key('due'), id) then return false end
local e = episode_key(id)
redis.call('HDEL', e, 'version')
move(id, 'queued', 'running')
local attempt = redis.call('HINCRBY', e, 'attempt', 1)
redis.call('HSET', e, 'worker', ARGV[2], 'calls', 0)
redis.call('ZADD', key('leases'), now() + ARGV[3], id)
local f = redis.call('HMGET', e, 'group', 'purpose', 'task_ref', 'wanted', 'task')
return { attempt, f[1], f[2], f[3], f[4] or '', f[5] }
