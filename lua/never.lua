-- A cost above a limit that always counts can never fit: it is answered like a peek, and changes nothing. Twin: src/limit/never.rs.

local asked = cost
local never = (algorithm ~= SLIDING_WINDOW and cost > capacity)
  or ((algorithm == SLIDING_WINDOW or (algorithm == HYBRID and trip_point == 0)) and cost > window_limit)
if never then cost = 0 end
