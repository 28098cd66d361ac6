-- The versions that a replica must serve: the newest published, the newest ready while calls may still pick it, those
-- pinned by live attempts, and those that unfinished evaluations ask for.
local f = redis.call('HMGET', KEYS[1], 'published', 'ready', 'state')
local out = {}
if f[3] ~= 'finished' then out = { f[1], f[2] } end
for _, name in ipairs({ 'pins', 'eval_versions' }) do
  local flat = redis.call('HGETALL', key(name))
  for i = 1, #flat, 2 do
    if tonumber(flat[i + 1]) > 0 then out[#out + 1] = flat[i] end
  end
end
return out
