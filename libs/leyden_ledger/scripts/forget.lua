-- ARGV: limit. Drops episodes that are in the archive, a part at a time; returns how many. With the last one goes
-- everything that only running episodes need.
local last = redis.call('HGET', KEYS[1], 'archived_order')
if not last then return 0 end
local ids = redis.call('ZRANGEBYSCORE', key('episodes'), '-inf', last, 'LIMIT', 0, ARGV[1])
for _, id in ipairs(ids) do
  local state = get(id, 'state')
  redis.call('DEL', episode_key(id), group_key(group_of(id)))
  redis.call('ZREM', key('state:' .. state), id)
  redis.call('ZREM', key('episodes'), id)
end
if redis.call('ZCARD', key('episodes')) == 0 then
  for _, name in ipairs({ 'finished', 'waiting', 'events', 'due', 'rung', 'leases', 'collecting', 'assembly', 'batches',
    'members', 'pins', 'eval_versions', 'entered', 'mastered' }) do
    redis.call('DEL', key(name))
  end
end
return #ids
