#!lua
-- sent.lua: note that a request's message is on its queue. A record that is gone stays gone.
-- KEYS[1] llmq:<env>:sub:<tenant hash>:{<rid>}  hash  sent
-- Returns {noted}; 1 noted, 0 there is no record.
local sub = KEYS[1]
if redis.call('EXISTS', sub) == 0 then
  return { 0 }
end
redis.call('HSET', sub, 'sent', 1)
return { 1 }
