-- Writes the subject's hash, and answers. Twin: `commit` and `answer` in src/limit/decide.rs.
--
-- The answer, packed: flags, reason, then wait (µs, -1 never), remaining, reset_after (µs), decided_at (µs) as doubles. Behind a refusal
-- stands what a mirror of it is made of.

if cost > 0 or hand_on == 2 then
  local as_new_at = max(now + bucket_reset_after, (second + 2) * US, open_until)
  -- The totals of the exact window stand in this hash: it must not go before the window does.
  if exact and entries > 0 then as_new_at = max(as_new_at, newest + window) end
  local least = as_new_at + EXPIRY_MARGIN
  local spare = EXPIRY_MARGIN + floor((as_new_at - now) / 4)
  local moved = expires_at < least or expires_at > least + 4 * spare
  if moved then expires_at = least + spare end
  if wrong_type then call('UNLINK', token_key) end
  packed = struct.pack('<ddddd', second, load_current, load_previous, open_until, expires_at)
  if totals_changed then
    call('HSET', token_key, 'tokens', tokens, 'refilled_at', now_text, 'load', packed, 'totals', totals)
  else
    call('HSET', token_key, 'tokens', tokens, 'refilled_at', now_text, 'load', packed)
  end
  if moved then call('PEXPIRE', token_key, format('%d', ceil((expires_at - now) / 1000))) end
end

local remaining, reset_after, window_binds = max(floor(tokens + TOLERANCE), 0), bucket_reset_after, false
if window_counts then
  local room = max(window_limit - used - charged, 0)
  window_binds = not bucket_counts or room < remaining
  if window_binds then
    remaining = room
    if charged > 0 then empty_at = max(empty_at or 0, exact and now + window or (slice + 1) * width + window) end
    reset_after = empty_at and empty_at - now or 0
  end
end
if reset_after ~= 0 then reset_after = reset_after + lacking end

local flags = ((reason == 0 or shadow == 1) and 1 or 0) + (is_open and 2 or 0) + (is_open and not was_open and 4 or 0)
  + (bucket_refuses and 8 or 0) + (window_refuses and 16 or 0) + (window_binds and 32 or 0) + (corrupt and 64 or 0)
local answer = struct.pack('<BBdddd', flags, reason, wait == NEVER and -1 or wait, remaining, reset_after, now)
if reason ~= 0 and cost > 0 and lacking == 0 and not corrupt then
  local leaves_at = NEVER
  if used > 0 then leaves_at = exact and oldest + window or (oldest_slice + 1) * width + window end
  answer = answer .. struct.pack('<dddddddd', tokens, load_current, load_previous, open_until, used,
    window_wait == NEVER and -1 or window_wait, empty_at or -1, leaves_at)
end
answers[turn] = answer
