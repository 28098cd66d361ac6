-- ARGV: batch, start, then (group, task, reference) repeated. Enters an upload's next groups and their episodes; 0 if
-- somebody else has entered them already.
local batch, start = ARGV[1], tonumber(ARGV[2])
local upload = cjson.decode(redis.call('HGET', key('uploads'), batch))
local purpose, size = upload.purpose, upload.size
if upload.done or tonumber(redis.call('HGET', key('entered'), batch) or 0) ~= start then return 0 end
if redis.call('HGET', KEYS[1], 'state') == 'cancelled' then return 0 end
local attempt = redis.call('HGET', KEYS[1], 'first_attempt')
local t = now()
local number = start
for i = 3, #ARGV, 3 do
  local group = ARGV[i]
  redis.call('HSET', group_key(group), 'task', ARGV[i + 1], 'task_ref', ARGV[i + 2], 'purpose', purpose, 'size', size,
    'sequence', upload.sequence + number, 'done', 0, 'state', purpose == 'train' and 'waiting' or 'released')
  if purpose == 'eval' then redis.call('HSET', group_key(group), 'version', upload.version) end
  local states, all, due = {}, {}, {}
  for index = 0, size - 1 do
    local id = group .. '.' .. index
    local order = upload.order + number * size + index
    redis.call('HSET', episode_key(id), 'state', 'queued', 'group', group, 'task', ARGV[i + 1], 'index', index,
      'purpose', purpose, 'attempt', attempt, 'failures', 0, 'calls', 0, 'sequence', order)
    states[#states + 1], states[#states + 2] = order, id
    due[#due + 1], due[#due + 2] = t, id
  end
  redis.call('ZADD', key('state:queued'), unpack(states))
  redis.call('ZADD', key('episodes'), unpack(states))
  if purpose == 'eval' then
    redis.call('ZADD', key('due'), unpack(due))
  else
    redis.call('RPUSH', key('waiting'), group)
  end
  number = number + 1
end
redis.call('HSET', key('entered'), batch, number)
redis.call('HINCRBY', KEYS[1], 'pending:' .. purpose, -(number - start) * size)
if number == upload.groups then
  redis.call('LREM', key('lane:' .. purpose), 1, batch)
  redis.call('HDEL', key('entered'), batch)
  upload.done = true
  redis.call('HSET', key('uploads'), batch, cjson.encode(upload))
end
return number - start
