-- Writes the sliced window. Twin: `write` in src/limit/window/sliced.rs.

if sliced and cost > 0 then
  if resummed then
    call('UNLINK', window_key)
    local some = {}
    for number, units in pairs(resummed) do
      some[#some + 1] = format('%d', number)
      some[#some + 1] = units
      if #some == 1000 then
        call('HSET', window_key, unpack(some))
        some = {}
      end
    end
    if #some > 0 then call('HSET', window_key, unpack(some)) end
  elseif left == 'all' then
    call('UNLINK', window_key)
  elseif left then
    call('HDEL', window_key, unpack(left))
  end
  if used == 0 then
    oldest_slice, newest_slice, slices_expire_at = slice, slice, 0
    -- What rounding of the sum could leave: nothing counts, so nothing stays.
    if charged == 0 and left and left ~= 'all' then call('UNLINK', window_key) end
  end
  if used + charged > 0 and (charged > 0 or left or resummed) then
    oldest_slice = min(oldest_slice, slice)
    if charged > 0 then newest_slice = max(newest_slice, slice) end
    local as_new_at = (newest_slice + 1) * width + window
    local least = as_new_at + EXPIRY_MARGIN
    local spare = EXPIRY_MARGIN + floor((as_new_at - now) / 4)
    local moved = slices_expire_at < least or slices_expire_at > least + 4 * spare
    if moved then slices_expire_at = least + spare end
    local sum = struct.pack('<dddd', used + charged, oldest_slice, newest_slice, slices_expire_at)
    if charged > 0 then
      call('HSET', window_key, 'sum', sum, format('%d', slice), format('%d', current + charged))
    else
      call('HSET', window_key, 'sum', sum)
    end
    if moved then call('PEXPIRE', window_key, format('%d', ceil((slices_expire_at - now) / 1000))) end
  end
end
