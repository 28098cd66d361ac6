-- ARGV: batch, start, then (group, task, reference) repeated. Enters an upload's next groups and their episodes; 0 if
-- somebody else has entered them already. The hot path of an upload: one command for many members where there can be.
local batch, start = ARGV[1], tonumber(ARGV[2])
local upload = cjson.decode(redis.call('HGET', key('uploads'), batch))
local purpose, size = upload.purpose, upload.size
if upload.done or tonumber(redis.call('HGET', key('entered'), batch) or 0) ~= start then return 0 end
if redis.call('HGET', KEYS[1], 'state') == 'cancelled' then return 0 end
local eval = purpose == 'eval'
local attempt = redis.call('HGET', KEYS[1], 'first_attempt')
-- A number is made text once, and as an integer: Redis does it for each use, and as a fraction of 17 digits.
local function text(number) return string.format('%d', number) end
local t, card_start = text(now()), table.concat({ purpose, text(size), eval and upload.version or '-', '' }, ' ')
local call, state = redis.call, eval and 'released' or 'waiting'
local orders, due, waiting = {}, {}, {}

-- `unpack` takes some thousands at most.
local function flush(least)
  if #orders < least then return end
  if #orders > 0 then
    call('ZADD', key('state:queued'), unpack(orders))
    call('ZADD', key('episodes'), unpack(orders))
  end
  if #due > 0 then call('ZADD', key('due'), unpack(due)) end
  orders, due = {}, {}
end

local number = start
for i = 3, #ARGV, 3 do
  local group, task = ARGV[i], ARGV[i + 1]
  call('HSET', group_key(group), 'state', state, 'task', task, 'task_ref', ARGV[i + 2],
    'card', card_start .. text(upload.sequence + number))
  for index = 0, size - 1 do
    local id, order = group .. '.' .. index, text(upload.order + number * size + index)
    call('HSET', episode_key(id), 'state', 'queued', 'attempt', attempt, 'purpose', purpose, 'task', task)
    orders[#orders + 1], orders[#orders + 2] = order, id
    if eval then due[#due + 1], due[#due + 2] = t, id end
  end
  if not eval then waiting[#waiting + 1] = group end
  flush(1000)
  number = number + 1
end
flush(0)
if #waiting > 0 then call('RPUSH', key('waiting'), unpack(waiting)) end
call('HSET', key('entered'), batch, number)
call('HINCRBY', KEYS[1], 'pending:' .. purpose, -(number - start) * size)
if number == upload.groups then
  call('LREM', key('lane:' .. purpose), 1, batch)
  call('HDEL', key('entered'), batch)
  upload.done = true
  call('HSET', key('uploads'), batch, cjson.encode(upload))
end
return number - start
