-- ARGV: field (`published`, `groups_consumed`, `groups_asked`), value. A counter that only grows; safe to repeat.
if tonumber(ARGV[2]) <= tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
emit('kind', ARGV[1], 'value', ARGV[2])
return 1
