-- ARGV: segments of one attempt at most, then (episode, attempt, segment) repeated. Where agents' own spans are, until
-- the attempt is complete: whoever assembles it must see the same ones each time. Returns (episode, attempt) of those
-- that came too late, or are more than an attempt may have.
local late = {}
for i = 2, #ARGV, 3 do
  local id, attempt = ARGV[i], ARGV[i + 1]
  local f = redis.call('HMGET', episode_key(id), 'attempt', 'state')
  local open = f[1] == attempt
    and (f[2] == 'running' or (f[2] == 'collecting' and not redis.call('ZSCORE', key('assembly'), id)))
  local segments = agents_key(id, attempt)
  if open and redis.call('SCARD', segments) < tonumber(ARGV[1]) then
    redis.call('SADD', segments, ARGV[i + 2])
  elseif redis.call('SISMEMBER', segments, ARGV[i + 2]) == 0 then
    late[#late + 1] = id
    late[#late + 1] = attempt
  end
end
return late
