-- ARGV: episode, attempt, message. Its spans are stored but do not make a whole: this attempt came to nothing.
local f = redis.call('HMGET', episode_key(ARGV[1]), 'state', 'attempt')
if f[1] ~= 'collecting' or f[2] ~= ARGV[2] then return 0 end
fail(ARGV[1], 'collecting', 'incomplete_trace', ARGV[3])
return 1
