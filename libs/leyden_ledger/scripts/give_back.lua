-- ARGV: episode, attempt. The worker is leaving: at once to another, and it does not count as a failure.
if not live(ARGV[1], ARGV[2]) then return 0 end
forget_spans(ARGV[1], ARGV[2])
move(ARGV[1], 'running', 'queued')
redis.call('ZADD', key('due'), now(), ARGV[1])
return 1
