#!lua
-- settle.lua: return what a call holds and tell how it ended. Only a slot that is still held counts, so a
-- repeat changes nothing; what lapsed stays charged.
-- KEYS[1] llmq:<env>:cap:{cap}:<alias>@<target>:state    hash  as in admit.lua; ran_<lane>: see peek.lua
-- KEYS[2] llmq:<env>:cap:{cap}:<alias>@<target>:rt       zset  call id -> lease end in ms
-- KEYS[3] llmq:<env>:cap:{cap}:<alias>@<target>:bg       zset  the same
-- KEYS[4] llmq:<env>:cap:{cap}:<alias>@<target>:bulk     zset  the same
-- KEYS[5] llmq:<env>:cap:{cap}:<alias>@<target>:waiting  zset  call id of a waiting rt call -> deadline in ms
-- KEYS[6] llmq:<env>:cap:{cap}:@<provider>:slots         zset  call id -> lease end in ms, over all its targets
-- KEYS[7] llmq:<env>:cap:{cap}:@<provider>:state         hash  rpm, tpm
-- ARGV[1] now_ms    integer, "" = server TIME
-- ARGV[2] call_id   string
-- ARGV[3] lane      string: rt, bg, bulk
-- ARGV[4] ending    string: ok, throttled, failed, abandoned; undone: no attempt was made
-- ARGV[5] stamp     integer, the admission's
-- ARGV[6] at_ms     integer, the admission's time; 0: its answer was lost, and the lease tells, unless it was prolonged
-- ARGV[7] reserved  integer, tokens
-- ARGV[8] used      integer, tokens that it cost; = reserved where nobody knows
-- ARGV[9] retry_ms  integer, what a throttled call was told to wait; 0 nothing
-- ARGV[10] broken   integer, 1: it says that the target is broken
-- ARGV[11] law      string, see LawConfig
-- ARGV[12] rpm      string: the target's budget of calls, see rates.lua; "" is none
-- ARGV[13] tpm      string: of tokens
-- ARGV[14] shared_rpm  string: the provider's
-- ARGV[15] shared_tpm  string: of tokens
-- ARGV[16] breaker  string: threshold window_ms cooldown_ms
-- ARGV[17] lease_ms integer > 0
-- ARGV[18] capped   integer, 1: the provider has a cap
-- Returns {returned, open_ms}; returned 1 the slot was held until now, 0 it was not; open_ms for how long the
-- target's breaker is open.
local function law_of() -- a chunk costs time when it is set up, and most calls end well
-- include law.lua
  return law
end
local floor, max, min, tonumber, match, format = math.floor, math.max, math.min, tonumber, string.match, string.format
local function rates_of()
-- include rates.lua
  return rates
end
local function breaker_of()
-- include breaker.lua
  return breaker
end
local state, waiting, shared_slots, provider = KEYS[1], KEYS[5], KEYS[6], KEYS[7]
local lanes = { rt = KEYS[2], bg = KEYS[3], bulk = KEYS[4] }
local id, lane, ending = ARGV[2], ARGV[3], ARGV[4]
local at, reserved, used = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local undone, background = ending == 'undone', lane ~= 'rt'
if undone then
  if not background then redis.call('ZREM', waiting, id) end
  local lease_end = redis.call('ZSCORE', lanes[lane], id)
  if at == 0 and lease_end and tonumber(lease_end) == floor(lease_end) then at = lease_end - ARGV[17] end
  ending = 'abandoned'
end
local returned = redis.call('ZREM', lanes[lane], id)
if ARGV[18] == '1' then redis.call('ZREM', shared_slots, id) end

local now = tonumber(ARGV[1])
local function time()
  if not now then
    local t = redis.call('TIME')
    now = t[1] * 1000 + floor(t[2] / 1000)
  end
  return now
end
local ran_field = 'ran_' .. lane
local fields = redis.call('HMGET', state, 'breaker', 'ok', 'rpm', 'tpm', ran_field)
local breaker_text = fields[1]
local broken, open_ms, changed = ARGV[10] == '1', 0, {}
local function put(field, text)
  if text then changed[#changed + 1], changed[#changed + 2] = field, text end
end
if breaker_text or broken then
  local breaker = breaker_of()
  local b = breaker.load(time(), breaker_text)
  if returned == 1 and breaker.ended(b, now, ARGV[16], id, ending == 'ok', broken) then
    local text = breaker.text(b)
    put('breaker', text)
    if not text then redis.call('HDEL', state, 'breaker') end
  end
  if b.state == breaker.OPEN then open_ms = b.open_until - now end
end
if returned == 0 then return { 0, open_ms } end

-- What it cost. A budget that is gone was wiped: it gets nothing back.
local calls, tokens = undone and 1 or 0, reserved - used
if (calls ~= 0 or tokens ~= 0) and (ARGV[12] ~= '' or ARGV[13] ~= '' or ARGV[14] ~= '' or ARGV[15] ~= '') then
  local rates = rates_of()
  local function give(config, text, n) return rates.give(time(), config, text, at, background, n) end
  if calls ~= 0 and ARGV[12] ~= '' then put('rpm', give(ARGV[12], fields[3], calls)) end
  if tokens ~= 0 and ARGV[13] ~= '' then put('tpm', give(ARGV[13], fields[4], tokens)) end
  if calls ~= 0 and ARGV[14] ~= '' then
    local text = give(ARGV[14], redis.call('HGET', provider, 'rpm'), calls)
    if text then redis.call('HSET', provider, 'rpm', text) end
  end
  if tokens ~= 0 and ARGV[15] ~= '' then
    local text = give(ARGV[15], redis.call('HGET', provider, 'tpm'), tokens)
    if text then redis.call('HSET', provider, 'tpm', text) end
  end
end
if at > 0 and (ending == 'ok' or ending == 'failed') then -- a forecast is made from it
  local ran, busy_ms = match(fields[5] or '', '^(%d+) (%d+)$')
  put(ran_field, format('%d %.0f', (ran or 0) + 1, (busy_ms or 0) + max(0, time() - at)))
end
if ending == 'ok' then -- the law hears of it at the next admission, so that a call that ended well costs little here
  local count, owed = match(fields[2] or '', '^(%d+) (%-?%d+) [01]$')
  put('ok', format('%d %d 1', (count or 0) + 1, (owed or 0) - tokens))
else
  local law = law_of()
  local flow = redis.call('HMGET', state, unpack(law.FIELDS))
  if flow[1] and match(flow[1], '^%d %d+ %d+ %d+ ') then -- else the state was lost, and with it what the call could teach
    local in_use = redis.call('ZCARD', lanes.rt) + redis.call('ZCARD', lanes.bg) + redis.call('ZCARD', lanes.bulk)
    local fine, learned = pcall(function()
      local s = law.load(time(), ARGV[11], flow)
      if undone then
        law.undone(s, now, max(at, tonumber(ARGV[5])), reserved)
      else
        law.ended(s, now, tonumber(ARGV[5]), reserved, ending, used, tonumber(ARGV[9]), in_use)
      end
      return law.dump(s)
    end)
    if not fine then
      redis.call('HDEL', state, 'flow') -- nothing that the law can work with: the next admission begins anew
      learned = {}
    end
    for _, word in ipairs(learned) do changed[#changed + 1] = word end
  end
  if type(redis.pcall('HINCRBY', state, ending, 1)) == 'table' then redis.call('HSET', state, ending, 1) end -- none of ours
end
if #changed > 0 then redis.call('HSET', state, unpack(changed)) end
return { 1, open_ms }
