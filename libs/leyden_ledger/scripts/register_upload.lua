-- ARGV: batch, fingerprint, groups, size, purpose, version or '', most episodes that may be under way, only ask?
-- An upload takes its place in the order here; its groups are entered later, a window at a time.
local state = redis.call('HGET', KEYS[1], 'state')
local batch, groups, size, purpose, version = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5], ARGV[6]
local seen = redis.call('HGET', key('uploads'), batch)
if seen then return { cjson.decode(seen).fingerprint == ARGV[2] and 'repeated' or 'conflict' } end
if state == 'cancelled' or (state ~= 'open' and purpose == 'train') then return { 'sealed' } end
local waits = unfinished()
if waits > 0 and waits + groups * size > tonumber(ARGV[7]) then return { 'full', waits } end
if ARGV[8] == '1' then return { 'accepted' } end
-- An evaluation without a version means the newest now, not whatever is newest when it runs.
if purpose == 'eval' and version == '' then version = redis.call('HGET', KEYS[1], 'published') end
local upload = { fingerprint = ARGV[2], groups = groups, size = size, purpose = purpose, version = version }
upload.sequence = redis.call('HINCRBY', KEYS[1], 'groups_accepted', groups) - groups
upload.order = redis.call('HINCRBY', KEYS[1], 'episodes_accepted', groups * size) - groups * size
redis.call('HSET', key('uploads'), batch, cjson.encode(upload))
redis.call('RPUSH', key('lane:' .. purpose), batch)
redis.call('HINCRBY', key('counts'), purpose .. ':queued', groups * size)
redis.call('HINCRBY', KEYS[1], 'pending:' .. purpose, groups * size)
if purpose == 'eval' then redis.call('HINCRBY', key('eval_versions'), version, groups) end
emit('kind', 'upload', 'batch', batch, 'groups', groups, 'purpose', purpose)
return { 'accepted' }
