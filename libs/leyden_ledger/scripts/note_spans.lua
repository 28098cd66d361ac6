-- ARGV: (episode, attempt, call, segment) repeated. Only the newest attempt's spans are of use.
for i = 1, #ARGV, 4 do
  local id, attempt = ARGV[i], ARGV[i + 1]
  local f = redis.call('HMGET', episode_key(id), 'attempt', 'state')
  if f[1] == attempt and (f[2] == 'running' or f[2] == 'collecting') then
    redis.call('HSETNX', spans_key(id, attempt), ARGV[i + 2], ARGV[i + 3])
    assemble_if_complete(id)
  end
end
return 1
