# Lists the library's fault points for the sweep: every name that its sources give to fault_point()
# or fault_point_fails(), one line FAULT_POINT("name", fails) each. Left out are those that break
# the protocol on purpose (mutate_*), and the windows of single tests (mutation_*). A name that is no
# literal would be missed, and is an error.
#
#   cmake -D SOURCES=folder -D OUTPUT=file -P fault_points.cmake
file(GLOB_RECURSE sources ${SOURCES}/*.cpp ${SOURCES}/*.hpp)
set(lines "")
foreach(source IN LISTS sources)
  file(READ ${source} text)
  set(literal "fault_point(_fails)?\\([ \n]*\"[^\"]*\"[ \n]*\\)")
  # Beside such calls there are the definitions, and comments that name the functions.
  string(REGEX REPLACE "${literal}|bool fault_point_fails\\(const char|void fault_point\\(const char"
    "" others "${text}")
  if(others MATCHES "fault_point(_fails)?\\([^)][^\n]*")
    message(FATAL_ERROR "${source}: no literal: ${CMAKE_MATCH_0}")
  endif()
  string(REGEX MATCHALL "${literal}" calls "${text}")
  foreach(call IN LISTS calls)
    string(REGEX MATCH "\"[^\"]*\"" name "${call}")
    if(name MATCHES "^\"mutat(e_|ion_)")
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
