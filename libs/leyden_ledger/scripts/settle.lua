-- ARGV: number before the first attempt, number of the batch, its name as one number, how many are stored, then
-- (episode, attempt) of these, then (episode, attempt, message) of those that are refused. Ends a batch, safe to repeat.
-- `settled`; `lost`: this ledger was rebuilt since, and knows nothing of the batch; `unknown`: that is not sure yet.
local f = redis.call('HMGET', KEYS[1], 'first_attempt', 'held', 'archive')
if not f[1] or f[2] == 'recovering' then return 'unknown' end
local stored, name = tonumber(ARGV[4]), ARGV[3]
if f[1] ~= ARGV[1] then
  local known = f[3]
  for i = 5, 4 + 2 * stored, 2 do known = known or get(ARGV[i], 'batch') == name end
  return known and 'settled' or 'lost'
end

-- Is `attempt` the closed one of an episode that waits for this?
local function waits(id, attempt)
  local e = redis.call('HMGET', episode_key(id), 'state', 'attempt')
  return e[1] == 'collecting' and e[2] == attempt
end

local function settle(id)
  local e = redis.call('HMGET', episode_key(id), 'purpose', 'reward', 'version')
  local series = e[1] == 'eval' and 'eval:' .. (e[3] or '0') or e[1]
  redis.call('HINCRBYFLOAT', key('rewards'), series .. ':sum', e[2])
  redis.call('HINCRBY', key('rewards'), series .. ':count', 1)
  -- What the trajectory holds need not be here as well.
  redis.call('HDEL', episode_key(id), 'reason', 'message', 'output', 'rewards', 'call_rewards')
  redis.call('HSET', episode_key(id), 'batch', name)
  finish(id, 'collecting', 'succeeded')
end

local refused = 5 + 2 * stored
for i = 5, refused - 1, 2 do
  if waits(ARGV[i], ARGV[i + 1]) then settle(ARGV[i]) end
end
for i = refused, #ARGV, 3 do
  if waits(ARGV[i], ARGV[i + 1]) then fail(ARGV[i], 'collecting', 'incomplete_trace', ARGV[i + 2]) end
end
-- Nobody is left behind: whoever has not been spoken for comes in another batch.
for id, attempt in string.gmatch(redis.call('HGET', key('members'), ARGV[2]) or '', '(%S+) (%S+)') do
  if waits(id, attempt) then redis.call('ZADD', key('assembly'), 'XX', now(), id) end
end
redis.call('ZREM', key('batches'), ARGV[2])
redis.call('HDEL', key('members'), ARGV[2])
return 'settled'
