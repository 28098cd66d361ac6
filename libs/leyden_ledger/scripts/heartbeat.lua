-- ARGV: episode, attempt, lease milliseconds. 0: this attempt has lost; kill the agent.
if not live(ARGV[1], ARGV[2]) then return 0 end
redis.call('ZADD', key('leases'), now() + ARGV[3], ARGV[1])
return 1
