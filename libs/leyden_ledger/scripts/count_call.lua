-- ARGV: episode, attempt. Returns the call's number, or -1 if fenced.
if not live(ARGV[1], ARGV[2]) then return -1 end
return redis.call('HINCRBY', episode_key(ARGV[1]), 'calls', 1)
