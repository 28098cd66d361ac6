-- ARGV: state, then the states it may follow
local state = redis.call('HGET', KEYS[1], 'state')
for i = 2, #ARGV do
  if ARGV[i] == state then
    redis.call('HSET', KEYS[1], 'state', ARGV[1])
    emit('kind', 'run', 'state', ARGV[1])
    return 1
  end
end
return 0
