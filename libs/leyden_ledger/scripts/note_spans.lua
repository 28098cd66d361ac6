-- ARGV: (episode, attempt, segment, calls) repeated; calls is their numbers, with a blank between. Only the newest attempt's
-- spans are of use: (episode, attempt) of the others is returned.
local fenced = {}
for i = 1, #ARGV, 4 do
  local id, attempt = ARGV[i], ARGV[i + 1]
  local f = redis.call('HMGET', episode_key(id), 'attempt', 'state')
  if f[1] == attempt and (f[2] == 'running' or f[2] == 'collecting') then
    for call in string.gmatch(ARGV[i + 3], '%d+') do
      redis.call('HSETNX', spans_key(id, attempt), call, ARGV[i + 2])
    end
    assemble_if_complete(id)
  elseif f[1] and f[1] ~= attempt then
    fenced[#fenced + 1] = id
    fenced[#fenced + 1] = attempt
  end
end
return fenced
