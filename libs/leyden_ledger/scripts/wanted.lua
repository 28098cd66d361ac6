-- The versions that a replica must serve: the newest published and the newest ready, for calls may pick them even when
-- the run has ended; the promoted one, and the one that a roll back returns to; those pinned by live attempts; and those
-- that evaluations ask for, begun or due.
local out = {}
for _, field in ipairs({ 'published', 'ready', 'best', 'predecessor' }) do
  local version = redis.call('HGET', KEYS[1], field)
  if version then out[#out + 1] = version end
end
for _, name in ipairs({ 'pins', 'eval_versions' }) do
  local flat = redis.call('HGETALL', key(name))
  for i = 1, #flat, 2 do
    if tonumber(flat[i + 1]) > 0 then out[#out + 1] = flat[i] end
  end
end
for _, version in ipairs(redis.call('SMEMBERS', key('due_evaluations'))) do out[#out + 1] = version end
return out
