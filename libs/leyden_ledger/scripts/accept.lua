-- ARGV: groups (JSON: [{id, task, task_ref, purpose, size, version?}]), idempotency key or '', fingerprint, last part?
-- A group that is there already is left alone, so a retry after a lost reply makes nothing twice.
local state = redis.call('HGET', KEYS[1], 'state')
if ARGV[2] ~= '' then
  local seen = redis.call('HGET', key('idempotency'), ARGV[2])
  if seen then return { seen == ARGV[3] and 'repeated' or 'conflict', 0 } end
end
local made = 0
for _, g in ipairs(cjson.decode(ARGV[1])) do
  if redis.call('EXISTS', group_key(g.id)) == 0 then
    if state ~= 'open' and g.purpose == 'train' then return { 'sealed', made } end
    -- An evaluation without a version means the newest now, not whatever is newest when it runs.
    local version = g.version
    if g.purpose == 'eval' and not version then version = redis.call('HGET', KEYS[1], 'published') end
    local sequence = redis.call('HINCRBY', KEYS[1], 'groups_accepted', 1) - 1
    redis.call('HSET', group_key(g.id), 'task', g.task, 'purpose', g.purpose, 'size', g.size, 'sequence', sequence,
      'done', 0, 'state', 'waiting')
    if version then
      redis.call('HSET', group_key(g.id), 'version', version)
      redis.call('HINCRBY', key('eval_versions'), version, 1)
    end
    for i = 0, g.size - 1 do
      local id = g.id .. '.' .. i
      local order = redis.call('HINCRBY', KEYS[1], 'episodes_accepted', 1) - 1
      redis.call('HSET', episode_key(id), 'state', 'queued', 'group', g.id, 'task', g.task, 'task_ref', g.task_ref,
        'index', i, 'purpose', g.purpose, 'attempt', 0, 'failures', 0, 'calls', 0, 'sequence', order)
      if version then redis.call('HSET', episode_key(id), 'wanted', version) end
      redis.call('ZADD', key('state:queued'), order, id)
      redis.call('ZADD', key('episodes'), order, id)
      redis.call('HINCRBY', key('counts'), g.purpose .. ':queued', 1)
      if g.purpose == 'eval' then redis.call('ZADD', key('due'), now(), id) end
    end
    if g.purpose == 'train' then
      redis.call('RPUSH', key('waiting'), g.id)
    else
      redis.call('HSET', group_key(g.id), 'state', 'released')
    end
    made = made + 1
  end
end
if ARGV[2] ~= '' and ARGV[4] == '1' then redis.call('HSET', key('idempotency'), ARGV[2], ARGV[3]) end
return { 'accepted', made }
