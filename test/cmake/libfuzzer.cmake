# A libFuzzer program fuzz_<target> for each folder of fuzz/corpus, and fuzz_programs for all of them.
# tools/check/fuzz.sh runs them.
add_library(fuzz_targets OBJECT
  fuzz/bus_fuzz_test.cpp fuzz/home_fuzz_test.cpp fuzz/ring_fuzz_test.cpp
  node/node_support.cpp)
target_include_directories(fuzz_targets PRIVATE
  ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(fuzz_targets PRIVATE cmi_objects doctest::doctest cmi_warnings)
add_custom_target(fuzz_programs)
file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES true ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/*)
foreach(folder IN LISTS folders)
  cmake_path(GET folder FILENAME target)
  add_executable(fuzz_${target} fuzz/libfuzzer/target.cpp $<TARGET_OBJECTS:fuzz_targets>)
  target_include_directories(fuzz_${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(fuzz_${target} PRIVATE CMI_FUZZ_TARGET="${target}")
  target_link_libraries(fuzz_${target} PRIVATE
    cmi_objects doctest::doctest cmi_warnings Threads::Threads)
  target_link_options(fuzz_${target} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzz_programs fuzz_${target})
endforeach()
