-- What is stored of the subject, and the time. Twin: src/limit/state.rs.
--
-- The hash: `tokens` and `refilled_at` (µs) as text; `load`, packed doubles: the load (second, current, previous),
-- `open_until`, and when the hash expires; `totals`, packed doubles, where there is an exact window. No value is longer than 64 bytes: Redis
-- keeps such a hash in one piece, which takes half of the memory. Whatever is no state of ours counts as missing, a missing
-- part is as new, and the next decision that writes replaces it: rubbish never means unlimited, and never stays.

local clock = at
if clock < 0 then
  if not server_time then
    local time = call('TIME')
    server_time = time[1] * US + time[2]
  end
  clock = server_time
end

local corrupt = false
local wrong_type = false
local stored = pcall('HMGET', token_key, 'tokens', 'refilled_at', 'load', 'totals')
if stored.err then
  if not string.find(stored.err, 'WRONGTYPE', 1, true) then
    answers[turn] = stored
    break
  end
  corrupt, wrong_type, stored = true, true, {}
end

local tokens, refilled_at = tonumber(stored[1]), tonumber(stored[2])
-- A number less itself is 0, unless it is infinite or none.
if not tokens or not refilled_at or tokens - tokens ~= 0 or refilled_at - refilled_at ~= 0 or tokens < -1 then
  if stored[1] or stored[2] then corrupt = true end
  tokens, refilled_at = capacity, clock
end

-- What the process that asks has answered from its mirror since the subject was last refused. Twin: src/limit/mirror.rs. `same`: nobody
-- else has written since, so that its state is the subject's.
local same = false
local handed_tokens, handed_at, handed_current, handed_previous, handed_open_until, seen_current, seen_previous, handed_dropped
if hand_on > 0 then
  local base
  base, handed_tokens, handed_at, handed_current, handed_previous, handed_open_until, seen_current, seen_previous,
    handed_dropped = struct.unpack('<ddddddddd', ARGV[turn], 78)
  same = stored[2] and refilled_at == base
  if same then tokens, refilled_at = handed_tokens, handed_at end
  -- Nobody asks: what was handed on is all that is to be written, and as of then.
  if hand_on == 2 and same then clock = handed_at end
end

-- More than a second ahead: the clock was corrected. Less: it stands still for this subject until it has caught up.
local corrected = refilled_at > clock + US
local now = corrected and clock or max(clock, refilled_at)
local lacking = now - clock
