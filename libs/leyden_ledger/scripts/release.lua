-- Lets as many train groups start as the staleness bound allows: with bound s, while version v is the newest that a
-- replica has proved, the groups of steps 1 to v + 1 + s may run: `groups_per_step` for each, and in all those that the
-- learner asked for in place of groups without a signal. Returns how many were released, how many episodes may be rung
-- for, how many are still to be entered, and how many have not ended.
if not goes_on() then return { 0, 0, 0, unfinished() } end
local f = redis.call('HMGET', KEYS[1], 'groups_released', 'groups_per_step', 'ready', 'max_staleness', 'groups_asked',
  'mastery')
-- Steps count from the version that the run's start makes, if it has one; before it, nothing starts.
local first = tonumber(redis.call('HGET', KEYS[1], 'first_version') or 0)
local room = tonumber(f[3]) < first and 0 or f[2] * (f[3] - first + 1 + f[4]) + tonumber(f[5] or 0) - f[1]
local released = 0
-- For putting off, in one call; the next one goes on.
local patience = 1000

-- A mastered task lets whoever waits go first, once.
local function put_off(group)
  if not f[6] then return false end
  if redis.call('SISMEMBER', key('mastered'), redis.call('HGET', group_key(group), 'task')) == 0 then return false end
  if redis.call('HSETNX', group_key(group), 'put_off', 1) == 0 then return false end
  redis.call('RPUSH', key('waiting'), group)
  patience = patience - 1
  return true
end

while released < room and patience > 0 do
  local group = redis.call('LPOP', key('waiting'))
  if not group then break end
  -- A group that was restored has started already, and was counted then.
  if redis.call('HGET', group_key(group), 'state') == 'waiting' and not put_off(group) then
    redis.call('HSET', group_key(group), 'state', 'released')
    for i = 0, card(group).size - 1 do
      local id = group .. '.' .. i
      if get(id, 'state') == 'queued' then redis.call('ZADD', key('due'), now(), id) end
    end
    released = released + 1
  end
end
if released > 0 then redis.call('HINCRBY', KEYS[1], 'groups_released', released) end
local t = now()
local due = math.min(redis.call('ZCOUNT', key('due'), '-inf', t), room_to_ring(t))
local pending = redis.call('HMGET', KEYS[1], 'pending:train', 'pending:eval')
return { released, math.max(due, 0), tonumber(pending[1] or 0) + tonumber(pending[2] or 0), unfinished() }
