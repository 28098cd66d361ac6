-- ARGV: version. A replica has proved it; the newest one lets the groups of the next step start.
redis.call('SADD', key('proved'), ARGV[1])
if tonumber(ARGV[1]) <= tonumber(redis.call('HGET', KEYS[1], 'ready')) then return 0 end
redis.call('HSET', KEYS[1], 'ready', ARGV[1])
emit('kind', 'ready', 'value', ARGV[1])
return 1
