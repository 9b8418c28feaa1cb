# Lists the library's fault points for the sweep: every name that its sources give to fault_point()
# or fault_point_fails(), one line FAULT_POINT("name", fails) each. Left out are the windows of single
# tests (mutation_*); what breaks the protocol on purpose is given to mutated(), and a mutate_* anywhere
# else is an error. A name that is no literal would be missed, and is an error, too.
#
#   cmake -D SOURCES=folder -D OUTPUT=file -P fault_points.cmake
file(GLOB_RECURSE sources ${SOURCES}/*.cpp ${SOURCES}/*.hpp)
set(lines "")
foreach(source IN LISTS sources)
  file(READ ${source} text)
  set(literal "fault_point(_fails)?\\([ \n]*\"[^\"]*\"[ \n]*\\)")
  # Beside such calls there are the definitions, comments that name the functions, and mutated().
  string(REGEX REPLACE
    "${literal}|bool fault_point_fails\\(const char|void fault_point\\(const char|return fault_point_fails\\(name"
    "" others "${text}")
  if(others MATCHES "fault_point(_fails)?\\([^)][^\n]*")
    message(FATAL_ERROR "${source}: no literal: ${CMAKE_MATCH_0}")
  endif()
  string(REGEX MATCHALL "${literal}" calls "${text}")
  foreach(call IN LISTS calls)
    string(REGEX MATCH "\"[^\"]*\"" name "${call}")
    if(name MATCHES "^\"mutate_")
      message(FATAL_ERROR "${source}: a mutation that is not asked for by mutated(): ${name}")
    elseif(name MATCHES "^\"mutation_")
      continue()
    endif()
    if(call MATCHES "_fails")
      list(APPEND lines "FAULT_POINT(${name}, true)")
    else()
      list(APPEND lines "FAULT_POINT(${name}, false)")
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES lines)
list(SORT lines)
list(JOIN lines "\n" text)
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "${text}\n" @ONLY)
