-- ARGV: episode, attempt, version, for what (`episode`, `group` or `call`). Returns the version that is pinned, or -1.
-- `pins` counts who may still use a version: live attempts, and unfinished groups that have pinned one.
local id, wish, what = ARGV[1], ARGV[3], ARGV[4]
if not live(id, ARGV[2]) then return -1 end
local function count(version, n) redis.call('HINCRBY', key('pins'), version, n) end
if what == 'group' then
  if redis.call('HSETNX', group_key(group_of(id)), 'pin', wish) == 1 then count(wish, 1) end
  wish = redis.call('HGET', group_key(group_of(id)), 'pin')
end
local pinned = get(id, 'version')
if pinned and (what ~= 'call' or pinned == wish) then return tonumber(pinned) end
redis.call('HSET', episode_key(id), 'version', wish)
count(wish, 1)
if pinned then count(pinned, -1) end
return tonumber(wish)
