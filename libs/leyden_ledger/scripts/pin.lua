-- ARGV: episode, attempt, version. The first pin of an attempt wins.
if not live(ARGV[1], ARGV[2]) then return -1 end
if redis.call('HSETNX', episode_key(ARGV[1]), 'version', ARGV[3]) == 1 then
  redis.call('HINCRBY', key('pins'), ARGV[3], 1)
  return tonumber(ARGV[3])
end
return tonumber(get(ARGV[1], 'version'))
