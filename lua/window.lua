-- The policy's own window, whichever kind it is. Twin: src/limit/window.rs.

local function window_read(key, packed, now, corrected)
  if width == 0 then exact_read(key, packed, now, corrected) else sliced_read(key, now, corrected) end
end

local function window_assess(key, now, counts)
  if width == 0 then return exact_assess(key, now, counts) end
  return sliced_assess(key, now)
end

-- When what is admitted now will have left.
local function window_leaves_at(now)
  return width == 0 and now + window or slice_leaves_at(slice_of(now))
end
