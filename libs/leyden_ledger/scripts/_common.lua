-- Prepended to every script. KEYS[1] is the run's hash `leyden:{RUN}:run`; all other keys share its prefix, and so its
-- cluster slot. Time is Redis's own: no other clock decides anything.
local P = string.sub(KEYS[1], 1, -4)

local function key(name) return P .. name end
local function episode_key(id) return P .. 'e:' .. id end
local function group_key(id) return P .. 'g:' .. id end
local function spans_key(id, attempt) return P .. 'a:' .. id .. ':' .. attempt end
local function agents_key(id, attempt) return spans_key(id, attempt) .. ':agents' end

local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- May episodes start? Not while the run is paused or being rebuilt, and never again once it is cancelled.
local function goes_on()
  local f = redis.call('HMGET', KEYS[1], 'state', 'held')
  return f[1] and f[1] ~= 'cancelled' and not f[2]
end

-- How many more episodes may be rung for: those that the run allows at once, less those that run or were rung for.
local function room_to_ring(t)
  local most = redis.call('HGET', KEYS[1], 'max_running')
  if not most then return math.huge end
  redis.call('ZREMRANGEBYSCORE', key('rung'), '-inf', t)
  return most - redis.call('ZCARD', key('leases')) - redis.call('ZCARD', key('rung'))
end

-- How many episodes have not ended, entered or not.
local function unfinished()
  local n = 0
  for _, state in ipairs({ 'queued', 'running', 'collecting' }) do
    for _, purpose in ipairs({ 'train', 'eval' }) do
      n = n + tonumber(redis.call('HGET', key('counts'), purpose .. ':' .. state) or 0)
    end
  end
  return n
end

-- `episode_id` in leyden_contracts: a group's id, a dot, the index.
local function group_of(id) return string.match(id, '^(.*)%.%d+$') end

-- What never changes of a group is one text, which costs Redis less than a field each: purpose, size, version (or `-`),
-- sequence.
local function card(group)
  local text = redis.call('HGET', group_key(group), 'card')
  if not text then return nil end
  local purpose, size, version = string.match(text, '^(%S+) (%S+) (%S+)')
  if version == '-' then version = nil end
  return { purpose = purpose, size = tonumber(size), version = version }
end

local function get(id, field) return redis.call('HGET', episode_key(id), field) end

local function emit(...)
  redis.call('XADD', key('events'), 'MAXLEN', '~', 20000, '*', ...)
end

-- Is `attempt` the live one of a running episode? This is the fence.
local function live(id, attempt)
  local f = redis.call('HMGET', episode_key(id), 'state', 'attempt')
  return f[1] == 'running' and f[2] == attempt
end

-- Compare-and-set of the state, with everything that is counted by state.
local function move(id, from, to)
  local f = redis.call('HMGET', episode_key(id), 'state', 'purpose', 'version')
  if f[1] ~= from then return false end
  redis.call('HSET', episode_key(id), 'state', to)
  redis.call('HINCRBY', key('counts'), f[2] .. ':' .. from, -1)
  redis.call('HINCRBY', key('counts'), f[2] .. ':' .. to, 1)
  redis.call('ZREM', key('state:' .. from), id)
  redis.call('ZADD', key('state:' .. to), redis.call('ZSCORE', key('episodes'), id), id)
  redis.call('ZREM', key('due'), id)
  redis.call('ZREM', key('rung'), id)
  if from == 'running' then
    redis.call('ZREM', key('leases'), id)
    redis.call('HDEL', episode_key(id), 'marks')
    if f[3] then redis.call('HINCRBY', key('pins'), f[3], -1) end
  elseif from == 'collecting' then
    redis.call('ZREM', key('collecting'), id)
    redis.call('ZREM', key('assembly'), id)
  end
  emit('kind', 'episode', 'episode', id, 'state', to, 'purpose', f[2], 'attempt', get(id, 'attempt'))
  return true
end

-- Where mastered tasks come last: a task is mastered when all its episodes were successes the last time that it came.
-- An episode that failed says nothing of it (I6).
local function note_mastery(group, size)
  local bar = redis.call('HGET', KEYS[1], 'mastery')
  if not bar then return end
  local successes, misses = 0, 0
  for i = 0, size - 1 do
    local f = redis.call('HMGET', episode_key(group .. '.' .. i), 'state', 'reward')
    if f[1] == 'succeeded' then
      if tonumber(f[2]) >= tonumber(bar) then successes = successes + 1 else misses = misses + 1 end
    end
  end
  local task = redis.call('HGET', group_key(group), 'task')
  if misses > 0 then redis.call('SREM', key('mastered'), task) end
  if successes == size then redis.call('SADD', key('mastered'), task) end
end

local function finish_group(group)
  local its = card(group)
  redis.call('HSET', group_key(group), 'state', 'finished')
  local pin = redis.call('HGET', group_key(group), 'pin')
  if pin then redis.call('HINCRBY', key('pins'), pin, -1) end
  if its.purpose == 'train' then
    note_mastery(group, its.size)
    redis.call('RPUSH', key('finished'), group)
    redis.call('HINCRBY', KEYS[1], 'groups_finished', 1)
  elseif its.version then
    redis.call('HINCRBY', key('eval_versions'), its.version, -1)
  end
  emit('kind', 'group', 'group', group, 'state', 'finished', 'purpose', its.purpose)
end

local function forget_spans(id, attempt)
  redis.call('DEL', spans_key(id, attempt), agents_key(id, attempt))
end

-- To a terminal state; the last episode of a group finishes the group.
local function finish(id, from, to)
  if not move(id, from, to) then return false end
  forget_spans(id, get(id, 'attempt'))
  local group = group_of(id)
  local done = redis.call('HINCRBY', group_key(group), 'done', 1)
  if done == card(group).size then finish_group(group) end
  return true
end

-- For one attempt that the agent may spoil, this many may fail by no fault of its own.
local PATIENCE = 5

-- An attempt that came to nothing: again after a back-off, or the end. Never a reward (I6).
local function fail(id, from, reason, message)
  local e = episode_key(id)
  redis.call('HINCRBY', key('failures'), reason, 1)
  redis.call('HSET', e, 'reason', reason, 'message', message)
  redis.call('HDEL', e, 'reward', 'rewards', 'output', 'call_rewards')
  local most = tonumber(redis.call('HGET', KEYS[1], 'max_attempts'))
  local innocent = reason == 'infrastructure' or reason == 'incomplete_trace'
  redis.call('HINCRBY', e, innocent and 'mishaps' or 'failures', 1)
  local f = redis.call('HMGET', e, 'failures', 'mishaps')
  local failures, mishaps = tonumber(f[1] or 0), tonumber(f[2] or 0)
  if failures >= most or mishaps >= most * PATIENCE then
    local last = 'failed'
    if reason == 'timeout' then last = 'timed_out' end
    return finish(id, from, last)
  end
  forget_spans(id, get(id, 'attempt'))
  if not move(id, from, 'queued') then return false end
  local pause = math.min(500 * 2 ^ (failures + mishaps - 1), 30000)
  -- The lease was a pause already; only what loses one worker after the other has to wait.
  if reason == 'worker_lost' and failures == 1 then pause = 0 end
  redis.call('ZADD', key('due'), now() + pause, id)
  return true
end

-- A closed attempt goes to assembly once the span of every counted call has been noted.
local function assemble_if_complete(id)
  local f = redis.call('HMGET', episode_key(id), 'state', 'attempt', 'calls')
  if f[1] ~= 'collecting' then return end
  if redis.call('HLEN', spans_key(id, f[2])) == tonumber(f[3]) then
    redis.call('ZADD', key('assembly'), 'NX', now(), id)
  end
end
