-- One decision. Twin: src/limit/decide.rs.
--
-- KEYS[1] the subject's hash: `tokens`, `refilled_at` (µs), `load` (packed: second, current, previous, open_until,
--         expires_at), `window` (packed: the totals of the exact window).
-- KEYS[2] the policy's own window; none with `token_bucket`.
-- ARGV[1] policy and question, packed (policy.lua).
-- Returns the answer, packed: flags, reason, wait (µs, -1 never), remaining, reset_after (µs), decided_at (µs).
--
-- Reads come first, then everything is worked out, then it is written: a refusal charges nothing, a peek writes nothing.

local BUCKET, WINDOW, COST_EXCEEDS_LIMIT = 1, 2, 3

local token_key, window_key = KEYS[1], KEYS[2]
local asked = cost

local clock = at
if clock < 0 then
  local time = redis.call('TIME')
  clock = time[1] * US + time[2]
end

-- Never.
local bucket_never = algorithm ~= SLIDING_WINDOW and cost > capacity
local window_never = (algorithm == SLIDING_WINDOW or (algorithm == HYBRID and trip_point == 0)) and cost > window_limit
local never = bucket_never or window_never
if never then cost = 0 end

-- State.
local stored = redis.pcall('HMGET', token_key, 'tokens', 'refilled_at', 'load', 'window')
local wrong_type = stored.err ~= nil
if wrong_type then
  if not string.find(stored.err, 'WRONGTYPE', 1, true) then return stored end
  corrupt = true
  stored = {}
end
local tokens, refilled_at = finite(stored[1]), finite(stored[2])
if not tokens or not refilled_at or tokens < -1 then
  if tokens or refilled_at then corrupt = true end
  tokens, refilled_at = capacity, clock
end

-- Clock.
local corrected = refilled_at > clock + US
local now = corrected and clock or math.max(clock, refilled_at)
local lacking = now - clock

-- Load and breaker.
local expires_at
load_second, load_current, load_previous, open_until, expires_at = unpack_finite('<ddddd', 5, stored[3])
if load_second and open_until > now + 3600 * US and not corrected then
  corrupt = true
  load_second = nil
end
if not load_second or corrected then
  load_second, load_current, load_previous, open_until = math.floor(now / US), 0, 0, 0
  expires_at = 0
else
  load_rolled(now)
end
local was_open = breaker_is_open(now)
if cost > 0 then
  if trip_point > 0 and load_trips(now) then open_until = now + cooldown end
  load_current = load_current + cost
end
local is_open = breaker_is_open(now)

-- Bucket.
tokens = bucket_refilled(tokens, math.min(refilled_at, now), now)
local bucket_waits = bucket_wait(tokens)
local bucket_counts = algorithm == TOKEN_BUCKET or (algorithm == HYBRID and not (is_open and while_open_window))

-- Window.
local window_counts = algorithm == SLIDING_WINDOW or (algorithm == HYBRID and is_open)
local used, window_waits, empty_at = 0, 0, nil
if uses_window then
  window_read(window_key, stored[4], now, corrected)
  used, window_waits, empty_at = window_assess(window_key, now, window_counts)
end

-- Decision.
local bucket_refuses = bucket_counts and bucket_waits > 0
local window_refuses = window_counts and window_waits > 0
local refused = bucket_refuses or window_refuses
local charged = refused and 0 or cost

-- Retry time.
local wait = 0
if refused then
  if algorithm == TOKEN_BUCKET then
    wait = bucket_waits
  elseif algorithm == SLIDING_WINDOW then
    wait = window_waits
  else
    wait = math.max(bucket_waits, window_waits)
    if trip_point > 0 then
      local early = math.max(bucket_waits, open_until - now)
      if load_trips(now + early) then early = math.max(early, (load_second + 2) * US - now) end
      wait = math.min(wait, early)
    end
    if while_open_window and (trip_point == 0 or now + window_waits < open_until) then wait = math.min(wait, window_waits) end
  end
  if wait ~= 0 then wait = wait + lacking end
end
if never then wait = NEVER end

-- Charge.
if charged > 0 and algorithm ~= SLIDING_WINDOW then
  if bucket_counts then
    tokens = tokens - charged
  else
    tokens = math.max(math.min(tokens, 0), tokens - charged)
  end
end
if cost > 0 then
  if wrong_type then redis.call('UNLINK', token_key) end
  local as_new_at = math.max(now + bucket_reset_after(tokens), (load_second + 2) * US, open_until)
  local packed_window = stored[4]
  if uses_window then
    if width == 0 then
      packed_window = exact_write(window_key, now, charged)
      -- The totals of the exact window stand in this hash: it must not go before the window does.
      if exact_entries > 0 then as_new_at = math.max(as_new_at, exact_newest + window) end
    else
      sliced_write(window_key, now, charged)
    end
  end
  local expires = expiry(expires_at, as_new_at, now)
  local packed_load = struct.pack('<ddddd', load_second, load_current, load_previous, open_until, expires)
  if packed_window then
    redis.call('HSET', token_key, 'tokens', tokens, 'refilled_at', now, 'load', packed_load, 'window', packed_window)
  else
    redis.call('HSET', token_key, 'tokens', tokens, 'refilled_at', now, 'load', packed_load)
  end
  if expires ~= expires_at then expire(token_key, expires, now) end
end

-- Answer.
local remaining, reset_after = bucket_room(tokens), nil
local window_binds = false
if window_counts then
  local room = math.max(window_limit - used - charged, 0)
  window_binds = not bucket_counts or room < remaining
  if window_binds then
    remaining = room
    if charged > 0 then empty_at = math.max(empty_at or 0, window_leaves_at(now)) end
    reset_after = empty_at and empty_at - now or 0
  end
end
if not window_binds then reset_after = bucket_reset_after(tokens) end
if reset_after ~= 0 then reset_after = reset_after + lacking end

local reason = 0
if never then
  reason = COST_EXCEEDS_LIMIT
  bucket_refuses, window_refuses = algorithm ~= SLIDING_WINDOW and asked > capacity, uses_window and asked > window_limit
elseif bucket_refuses then
  reason = BUCKET
elseif window_refuses then
  reason = WINDOW
end
local flags = ((reason == 0 or shadow) and 1 or 0) + (is_open and 2 or 0) + (is_open and not was_open and 4 or 0)
  + (bucket_refuses and 8 or 0) + (window_refuses and 16 or 0) + (window_binds and 32 or 0) + (corrupt and 64 or 0)
return struct.pack('<BBdddd', flags, reason, wait == NEVER and -1 or wait, remaining, reset_after, now)
