
until true
end
return answers
