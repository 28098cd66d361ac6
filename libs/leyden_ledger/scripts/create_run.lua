-- ARGV: spec, groups_per_step, max_staleness, max_attempts, max_calls, max_running or '', number before the first attempt,
-- the reward of a success where mastered tasks come last, or '', version that training begins from: 0, or 1 where a start
-- makes it
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'spec', ARGV[1], 'state', 'open', 'groups_per_step', ARGV[2], 'max_staleness', ARGV[3],
  'max_attempts', ARGV[4], 'max_calls', ARGV[5], 'first_attempt', ARGV[7], 'groups_accepted', 0, 'episodes_accepted', 0,
  'groups_released', 0, 'groups_finished', 0, 'groups_consumed', 0, 'groups_asked', 0, 'published', 0, 'ready', 0,
  'first_version', ARGV[9])
if ARGV[6] ~= '' then redis.call('HSET', KEYS[1], 'max_running', ARGV[6]) end
if ARGV[8] ~= '' then redis.call('HSET', KEYS[1], 'mastery', ARGV[8]) end
if ARGV[7] ~= '0' then redis.call('HSET', KEYS[1], 'held', 'recovering') end
emit('kind', 'run', 'state', 'open')
return 1
