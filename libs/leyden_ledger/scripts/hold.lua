-- ARGV: why nothing may start (`paused`, `recovering`), or '' to go on.
if ARGV[1] == '' then redis.call('HDEL', KEYS[1], 'held') else redis.call('HSET', KEYS[1], 'held', ARGV[1]) end
emit('kind', 'run', 'state', ARGV[1] == '' and 'resumed' or ARGV[1])
return 1
