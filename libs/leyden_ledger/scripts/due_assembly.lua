-- ARGV: members at most, calls at most, lease milliseconds. Leases a batch: one whose lease has ended, as it was, or a new
-- one of the attempts that wait. Returns what the ledger is told apart by (see `settle`), the batch's number and its
-- members: flat list of the episode's fields, then of its spans, then the segments with its agent's own. Nothing if
-- nothing waits.
local t = now()

local function form()
  local members, calls = {}, 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('assembly'), '-inf', t, 'LIMIT', 0, ARGV[1])) do
    local f = redis.call('HMGET', episode_key(id), 'attempt', 'calls')
    calls = calls + f[2]
    if #members > 0 and calls > tonumber(ARGV[2]) then break end
    members[#members + 1] = id .. ' ' .. f[1]
    -- It stays here, so that it is known to be complete (see `expire`), and is in no other batch.
    redis.call('ZADD', key('assembly'), '+inf', id)
  end
  if #members == 0 then return nil end
  local number = redis.call('HINCRBY', KEYS[1], 'batches', 1)
  redis.call('HSET', key('members'), number, table.concat(members, '\n'))
  return number
end

local number = redis.call('ZRANGEBYSCORE', key('batches'), '-inf', t, 'LIMIT', 0, 1)[1] or form()
if not number then return false end
redis.call('ZADD', key('batches'), t + ARGV[3], number)
local out = {}
for id, attempt in string.gmatch(redis.call('HGET', key('members'), number), '(%S+) (%S+)') do
  local f = redis.call('HMGET', episode_key(id), 'state', 'attempt', 'task', 'purpose', 'reward', 'rewards', 'calls',
    'output', 'call_rewards')
  if f[1] == 'collecting' and f[2] == attempt then
    out[#out + 1] = { id, group_of(id), f, redis.call('HGETALL', spans_key(id, attempt)),
      redis.call('SMEMBERS', agents_key(id, attempt)) }
  end
end
return { redis.call('HGET', KEYS[1], 'first_attempt'), tonumber(number), out }
