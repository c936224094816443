-- The load of a subject, and the breaker that it opens. Twin: src/limit/load.rs.

local load_second, load_current, load_previous, open_until

local function load_rolled(now)
  local second = math.floor(now / US)
  if second == load_second then return end
  load_previous = second == load_second + 1 and load_current or 0
  load_current = 0
  load_second = second
end

local function load_at(time)
  local second = math.floor(time / US)
  local share = 1 - (time - second * US) / US
  if second == load_second then return load_current + load_previous * share end
  if second == load_second + 1 then return load_current * share end
  return 0
end

local function load_trips(time)
  return load_at(time) > trip_point + TOLERANCE
end

local function breaker_is_open(now)
  return now < open_until or trip_point == 0
end
