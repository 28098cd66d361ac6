-- ARGV: episode, attempt, outcome, reward, rewards (JSON), output (JSON), reason, message, rewards of calls (JSON) or ''.
-- 0: fenced.
local id = ARGV[1]
if not live(id, ARGV[2]) then return 0 end
if ARGV[3] == 'failed' then
  fail(id, 'running', ARGV[7], ARGV[8])
  return 1
end
redis.call('HSET', episode_key(id), 'reward', ARGV[4], 'rewards', ARGV[5], 'output', ARGV[6])
if ARGV[9] ~= '' then redis.call('HSET', episode_key(id), 'call_rewards', ARGV[9]) end
move(id, 'running', 'collecting')
redis.call('ZADD', key('collecting'), now(), id)
assemble_if_complete(id)
return 1
