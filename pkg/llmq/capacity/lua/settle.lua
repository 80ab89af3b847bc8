#!lua
-- settle.lua: return what a call holds and tell how it ended. Only a slot that is still held counts, so a
-- repeat changes nothing; what lapsed stays charged.
-- KEYS[1] llmq:<env>:cap:{cap}:<alias>@<target>:state    hash  the law's fields, rate, breaker, calls by ending
-- KEYS[2] llmq:<env>:cap:{cap}:<alias>@<target>:rt       zset  call id -> lease end in ms
-- KEYS[3] llmq:<env>:cap:{cap}:<alias>@<target>:bg       zset  the same
-- KEYS[4] llmq:<env>:cap:{cap}:<alias>@<target>:bulk     zset  the same
-- KEYS[5] llmq:<env>:cap:{cap}:<alias>@<target>:waiting  zset  call id of a waiting rt call -> deadline in ms
-- KEYS[6] llmq:<env>:cap:{cap}:@<provider>:slots         zset  call id -> lease end in ms, over all its targets
-- KEYS[7] llmq:<env>:cap:{cap}:@<provider>:state         hash  rate
-- ARGV[1] now_ms    integer, "" = server TIME
-- ARGV[2] call_id   string
-- ARGV[3] lane      string: rt, bg, bulk
-- ARGV[4] ending    string: ok, throttled, failed, abandoned; undone: no attempt was made
-- ARGV[5] stamp     integer, the admission's
-- ARGV[6] at_ms     integer, the admission's time; 0: its answer was lost
-- ARGV[7] reserved  integer, tokens
-- ARGV[8] used      integer, tokens that it cost; = reserved where nobody knows
-- ARGV[9] retry_ms  integer, what a throttled call was told to wait; 0 nothing
-- ARGV[10] broken   integer, 1: it says that the target is broken
-- ARGV[11] law      string, see LawConfig
-- ARGV[12] budgets  string: of the target, see rates.lua; "" is none
-- ARGV[13] shared   string: budgets of the provider
-- ARGV[14] breaker  string: threshold window_ms cooldown_ms
-- ARGV[15] lease_ms integer > 0
-- Returns {returned, in_use, open_ms}; returned 1 the slot was held until now, 0 it was not; open_ms for how
-- long the target's breaker is open.
-- include law.lua
-- include rates.lua
-- include breaker.lua
local state, waiting, shared_slots, provider = KEYS[1], KEYS[5], KEYS[6], KEYS[7]
local lanes = { rt = KEYS[2], bg = KEYS[3], bulk = KEYS[4] }
local now = tonumber(ARGV[1])
if not now then
  local t = redis.call('TIME')
  now = t[1] * 1000 + math.floor(t[2] / 1000)
end
local id, lane, ending = ARGV[2], ARGV[3], ARGV[4]
local stamp, at, reserved, used = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local undone, background = ending == 'undone', lane ~= 'rt'
if undone then
  if not background then redis.call('ZREM', waiting, id) end
  local lease_end = redis.call('ZSCORE', lanes[lane], id)
  if at == 0 and lease_end then at = lease_end - ARGV[15] end
  ending = 'abandoned'
end

local returned = redis.call('ZREM', lanes[lane], id)
local in_use = redis.call('ZCARD', lanes.rt) + redis.call('ZCARD', lanes.bg) + redis.call('ZCARD', lanes.bulk)
redis.call('ZREM', shared_slots, id)
local fields = redis.call('HMGET', state, 'rate', 'breaker', unpack(law.FIELDS))
local b = breaker.load(now, fields[2] or nil)
if returned == 1 then
  local changed = {}
  if fields[3] then -- else the state was lost, and with it what the call could teach
    local s = law.load(now, ARGV[11], { unpack(fields, 3) })
    law.ended(s, now, stamp, reserved, ending, used, tonumber(ARGV[9]), in_use)
    changed = law.dump(s)
  end
  local calls, tokens = undone and 1 or 0, reserved - used
  if calls ~= 0 or tokens ~= 0 then
    local budgets = fields[1] and rates.load(now, ARGV[12], fields[1], 0)
    if budgets then
      rates.give(budgets, at, background, calls, tokens)
      changed[#changed + 1], changed[#changed + 2] = 'rate', rates.text(budgets)
    end
    local text = ARGV[13] ~= '' and redis.call('HGET', provider, 'rate')
    local shared_budgets = text and rates.load(now, ARGV[13], text, 0)
    if shared_budgets then
      rates.give(shared_budgets, at, background, calls, tokens)
      redis.call('HSET', provider, 'rate', rates.text(shared_budgets))
    end
  end
  if breaker.ended(b, now, ARGV[14], id, ending == 'ok', ARGV[10] == '1') then
    local text = breaker.text(b)
    if text then
      changed[#changed + 1], changed[#changed + 2] = 'breaker', text
    else
      redis.call('HDEL', state, 'breaker')
    end
  end
  if #changed > 0 then redis.call('HSET', state, unpack(changed)) end
  redis.call('HINCRBY', state, ending, 1)
end
return { returned, in_use, b.state == breaker.OPEN and b.open_until - now or 0 }
