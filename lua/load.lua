-- The load of the subject, and the breaker that it opens. Twin: src/limit/load.rs.

local second = floor(now / US)
local share = 1 - (now - second * US) / US
local load_current, load_previous, open_until, expires_at = 0, 0, 0, 0
local packed = stored[3]
if packed then
  local then_second, then_current, then_previous, then_open_until, then_expires_at
  if #packed == 40 then then_second, then_current, then_previous, then_open_until, then_expires_at = struct.unpack('<ddddd', packed) end
  local sum = then_second and then_second + then_current + then_previous + then_open_until + then_expires_at
  -- No cooldown is longer than an hour: what claims to stay open longer was not written by a decision.
  if not sum or sum - sum ~= 0 or then_open_until > max(now, refilled_at) + 3600 * US then
    corrupt, packed = true, nil
  elseif not corrected then
    open_until, expires_at = then_open_until, then_expires_at
    if same then
      then_second, then_current, then_previous, open_until = floor(handed_at / US), handed_current, handed_previous, handed_open_until
    end
    if then_second == second then
      load_current, load_previous = then_current, then_previous
    elseif then_second + 1 == second then
      load_previous = then_current
    end
  end
end
if hand_on > 0 and not same and not corrected then
  local seen_second = floor(handed_at / US)
  if seen_second == second then
    load_current, load_previous = load_current + seen_current, load_previous + seen_previous
  elseif seen_second + 1 == second then
    load_previous = load_previous + seen_current
  end
  open_until = max(open_until, handed_open_until)
end

local was_open = now < open_until or trip_point == 0
if cost > 0 and trip_point > 0 and load_current + load_previous * share > trip_point + TOLERANCE then open_until = now + cooldown end
local is_open = now < open_until or trip_point == 0
