#!lua
-- sent.lua: note that a request's message is on its queue, with which deadline. A record that is gone stays gone.
-- KEYS[1] llmq:<env>:sub:<tenant hash>:{<rid>}  hash  deadline_ms, sent
-- ARGV[1] deadline_ms  integer, of the message; the latest of all that were sent stands
-- Returns {noted}; 1 noted, 0 there is no record.
local sub, deadline = KEYS[1], tonumber(ARGV[1])
local known = redis.call('HMGET', sub, 'sent', 'deadline_ms')
if not known[1] then
  return { 0 }
end
if known[1] == '1' then
  deadline = math.max(deadline, tonumber(known[2]))
end
redis.call('HSET', sub, 'sent', 1, 'deadline_ms', string.format('%.0f', deadline))
return { 1 }
