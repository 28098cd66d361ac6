-- ARGV: group, trained on already?, then (index, attempt, reward, version, calls, batch) repeated: what the object store
-- knows of a group whose ledger was lost. What it does not know runs again, unless it is too late for that.
local group = ARGV[1]
local state, its = redis.call('HGET', group_key(group), 'state'), card(group)
if not state or state == 'finished' then return 0 end
if state == 'waiting' then
  redis.call('HSET', group_key(group), 'state', 'released')
  redis.call('HINCRBY', KEYS[1], 'groups_released', 1)
end
for i = 3, #ARGV, 6 do
  local id = group .. '.' .. ARGV[i]
  local series = its.purpose == 'eval' and 'eval:' .. (ARGV[i + 3] == '' and '0' or ARGV[i + 3]) or 'train'
  if get(id, 'state') == 'queued' then
    redis.call('HSET', episode_key(id), 'attempt', ARGV[i + 1], 'reward', ARGV[i + 2],
      'calls', ARGV[i + 4], 'batch', ARGV[i + 5])
    if ARGV[i + 3] ~= '' then redis.call('HSET', episode_key(id), 'version', ARGV[i + 3]) end
    redis.call('HINCRBYFLOAT', key('rewards'), series .. ':sum', ARGV[i + 2])
    redis.call('HINCRBY', key('rewards'), series .. ':count', 1)
    finish(id, 'queued', 'succeeded')
  end
end
for index = 0, its.size - 1 do
  local id = group .. '.' .. index
  if get(id, 'state') == 'queued' then
    if ARGV[2] == '1' then
      redis.call('HSET', episode_key(id), 'reason', 'infrastructure', 'message', 'it ended before the ledger was lost')
      finish(id, 'queued', 'failed')
    else
      redis.call('ZADD', key('due'), now(), id)
    end
  end
end
return 1
