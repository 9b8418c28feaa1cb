# Registers the cases of a doctest program with ctest, one test per case. Beyond what doctest's own
# module does: suites become labels, and lists (the environment) arrive whole.
#
# Included from a list file, it defines cmi_discover_tests(). Run with `cmake -P` after the program
# has been linked, it asks the program for its cases and writes the file that ctest reads.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(CMI_DISCOVER_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

  # cmi_discover_tests(target kind): uses CMI_TEST_TIMEOUT, CMI_TEST_ENVIRONMENT,
  # CMI_TEST_VARIANTS, CMI_TEST_BRIEF_VARIANTS, CMI_TEST_BETWEEN_VARIANTS, CMI_TEST_THREADS_VARIANTS,
  # CMI_TEST_SHORT_VARIANTS, CMI_TEST_LONG_CASES, CMI_TEST_LONG_SUITES, CMI_TEST_SIMULATED_SYSTEM,
  # CMI_TEST_PROVIDERS, CMI_TEST_LOCAL_CASES, CMI_TEST_NETWORK_CASES and CMI_TEST_FAULT_NETWORK_CASES.
  function(cmi_discover_tests target kind)
    if(CMAKE_CROSSCOMPILING)
      return()  # it does not run here: test/arm64/run runs the programs themselves
    endif()
    set(cases ${CMAKE_CURRENT_BINARY_DIR}/${target}_cases.cmake)
    set(network_cases "${CMI_TEST_NETWORK_CASES}")
    if(kind STREQUAL "fault")
      set(network_cases "${CMI_TEST_FAULT_NETWORK_CASES}")
    endif()
    add_custom_command(TARGET ${target} POST_BUILD
      COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${target}> -D KIND=${kind}
        -D "TEST_TIMEOUT=${CMI_TEST_TIMEOUT}" -D "TEST_ENVIRONMENT=${CMI_TEST_ENVIRONMENT}"
        -D "VARIANT_VARIANTS=${CMI_TEST_VARIANTS}" -D "VARIANT_SUITES=${CMI_TEST_VARIANT_SUITES}"
        -D "BRIEF_VARIANTS=${CMI_TEST_BRIEF_VARIANTS}"
        -D "BRIEF_SUITES=${CMI_TEST_BRIEF_SUITES}"
        -D "BETWEEN_VARIANTS=${CMI_TEST_BETWEEN_VARIANTS}"
        -D "BETWEEN_SUITES=${CMI_TEST_BETWEEN_SUITES}"
        -D "THREADS_VARIANTS=${CMI_TEST_THREADS_VARIANTS}"
        -D "THREADS_SUITES=${CMI_TEST_THREADS_SUITES}"
        -D "SHORT_VARIANTS=${CMI_TEST_SHORT_VARIANTS}" -D "LONG_CASES=${CMI_TEST_LONG_CASES}"
        -D "LONG_SUITES=${CMI_TEST_LONG_SUITES}" -D "SIMULATED=${CMI_TEST_SIMULATED_SYSTEM}"
        -D "PROVIDERS=${CMI_TEST_PROVIDERS}" -D "PROVIDER_CASES=${CMI_TEST_PROVIDER_CASES}"
        -D "LOCAL_CASES=${CMI_TEST_LOCAL_CASES}" -D "NETWORK_CASES=${network_cases}"
        -D CASES=${cases} -P ${CMI_DISCOVER_SCRIPT}
      BYPRODUCTS ${cases} VERBATIM)
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake
      "if(EXISTS \"${cases}\")\n"
      "  include(\"${cases}\")\n"
      "else()\n"
      "  add_test(${kind}/not_built ${target}_is_not_built)\n"
      "  set_tests_properties(${kind}/not_built PROPERTIES LABELS ${kind})\n"
      "endif()\n")
    set_property(DIRECTORY APPEND PROPERTY
      TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${target}_include.cmake)
  endfunction()
  return()
endif()

cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${PROGRAM} --list-test-cases --reporters=xml
  OUTPUT_VARIABLE listing RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} cannot list its cases: ${result}\n${listing}")
endif()

# What a simulated thread has in hand when its process dies is given back by nobody.
if(KIND STREQUAL "sim")
  string(REPLACE "detect_leaks=1" "detect_leaks=0" TEST_ENVIRONMENT "${TEST_ENVIRONMENT}")
endif()

# Sets `result` where the case stands in a source that simulated nodes run as well, as no PROCESS_CASE.
function(is_simulated name filename result)
  set(${result} FALSE PARENT_SCOPE)
  cmake_path(GET filename FILENAME source)
  if(source IN_LIST SIMULATED)
    file(READ "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../system/${source}" text)
    if(NOT text MATCHES "PROCESS_CASE(_FIXTURE)?\\(([A-Za-z]+,)?[ \n]*\"${name}\"")
      set(${result} TRUE PARENT_SCOPE)
    endif()
  endif()
endfunction()

# add_case(test labels environment): of the program's cases that match `pattern`. The label long is
# given to what LONG_CASES names and to what simulated nodes show in the same circumstances, beside
# what has it already.
macro(add_case test given environment)
  set(labels_of_test ${given})
  if("${test}" MATCHES "${LONG_CASES}" OR "${KIND}=${suite}" IN_LIST LONG_SUITES
     OR (simulated AND NOT "${environment}" MATCHES "CMI_TEST_(FAULT|PROVIDER)"))
    list(APPEND labels_of_test long)
    list(REMOVE_DUPLICATES labels_of_test)
  endif()
  string(APPEND script
    "add_test([==[${test}]==] [==[${PROGRAM}]==] [==[--test-case=${pattern}]==])\n"
    "set_tests_properties([==[${test}]==] PROPERTIES LABELS [==[${labels_of_test}]==]"
    " TIMEOUT ${timeout} COST ${cost} SKIP_RETURN_CODE 77${alone} ENVIRONMENT [==[${environment}]==])\n")
endmacro()

set(script "")
# Semicolons and brackets would be taken for list syntax below.
string(REPLACE ";" "<semicolon>" listing "${listing}")
string(REPLACE "[" "<open>" listing "${listing}")
string(REPLACE "]" "<close>" listing "${listing}")
string(REGEX MATCHALL "<TestCase [^\n]*/>" lines "${listing}")
foreach(line IN LISTS lines)
  if(line MATCHES " skipped=\"true\"")
    continue()
  endif()
  string(REGEX MATCH " name=\"([^\"]*)\"" ignored "${line}")
  set(name "${CMAKE_MATCH_1}")
  set(labels ${KIND})
  set(suite "")
  if(line MATCHES " testsuite=\"([^\"]+)\"")
    set(suite "${CMAKE_MATCH_1}")
    list(APPEND labels "${suite}")
  endif()
  foreach(pair "<open>=[" "<close>=]" "&quot<semicolon>=\"" "&lt<semicolon>=<"
               "&gt<semicolon>=>" "&amp<semicolon>=&")
    string(REGEX MATCH "^(.*)=(.)$" ignored "${pair}")
    string(REPLACE "${CMAKE_MATCH_1}" "${CMAKE_MATCH_2}" name "${name}")
  endforeach()
  string(REPLACE "<semicolon>" ";" name "${name}")
  # The soak lasts as long as it is told to, and bounds its own waits; what lasts begins first.
  set(timeout ${TEST_TIMEOUT})
  set(cost 0)
  if(suite STREQUAL "soak")
    set(timeout 1500)
    set(cost 1000)
  elseif(suite STREQUAL "sweep")
    set(cost 100)
  elseif(suite STREQUAL "cycles")
    set(timeout 900)  # all cycles of three threads: two minutes alone
    set(cost 500)
  endif()
  # The kernel's pool of large pages is one test's at a time.
  set(alone "")
  if(suite STREQUAL "large_pages")
    set(alone " RESOURCE_LOCK large_pages")
  endif()
  # Beside many others it takes thousands of rounds for what dozens show.
  if(name STREQUAL "readers_disagree_on_the_order_of_what_no_barrier_has_completed")
    set(alone " PROCESSORS 4")
  endif()
  # A comma separates patterns for doctest.
  string(REPLACE "," "\\," pattern "${name}")
  if(KIND STREQUAL "fabric" AND name MATCHES "^(net|rxm|sockets|strict): ")
    list(APPEND labels provider)  # the contract, on a provider
  endif()
  set(simulated FALSE)
  if(KIND STREQUAL "system" AND line MATCHES " filename=\"([^\"]*)\"")
    is_simulated("${name}" "${CMAKE_MATCH_1}" simulated)
  endif()
  add_case("${KIND}/${name}" "${labels}" "${TEST_ENVIRONMENT}")
  if(name MATCHES "^(${PROVIDER_CASES})$")
    foreach(provider IN LISTS PROVIDERS)
      string(REGEX MATCH "^([^=]*)=(.*)$" ignored "${provider}")
      set(prefix "${CMAKE_MATCH_1}")
      string(REPLACE "<semicolon>" "\\;" value "${CMAKE_MATCH_2}")
      add_case("provider/${prefix}/${name}" provider "${TEST_ENVIRONMENT};${value}")
    endforeach()
  endif()
  if(KIND STREQUAL "sim" AND line MATCHES " filename=\"[^\"]*system/[^\"]*_nodes_test\\.cpp\""
     AND NOT name MATCHES "^(${NETWORK_CASES})$")
    add_case("sim-local/${name}" "local" "${TEST_ENVIRONMENT};CMI_TEST_LOCAL=on")
  endif()
  # Some map the home's pages, and others have them over the network. Shapes of which that leaves too few
  # outcomes that tell anything are left out.
  if(KIND MATCHES "^(sim|litmus)$" AND line MATCHES " filename=\"[^\"]*litmus/[^\"]*\""
     AND name MATCHES "^(of_two_that|one_location_never|readers_that|swaps_of)_"
     AND NOT name MATCHES "_without_a_barrier_|_is_broken$")
    set(mixed_labels local)
    if(NOT (KIND STREQUAL "sim" AND name MATCHES "^one_location_never_goes_back_for_anybody$"))
      list(APPEND mixed_labels long)
    endif()
    set(prefix "local-mixed")
    if(KIND STREQUAL "sim")
      string(PREPEND prefix "sim-")
    endif()
    add_case("${prefix}/${name}" "${mixed_labels}" "${TEST_ENVIRONMENT};CMI_TEST_LOCAL=mixed")
  endif()
  list(APPEND names "${name}")
  if(KIND STREQUAL "system" AND name MATCHES "^(${LOCAL_CASES})$")
    add_case("local/${name}" local "${TEST_ENVIRONMENT};CMI_TEST_LOCAL=on")
  elseif((KIND STREQUAL "system" AND line MATCHES "_nodes_test" AND NOT suite STREQUAL "local"
          AND NOT name MATCHES "^(${NETWORK_CASES})$")
         OR (KIND STREQUAL "litmus" AND name MATCHES
             "^(of_two_that|one_location_never|readers_(agree|that)|swaps_of|what_happened)_"
             AND NOT name MATCHES "_without_a_barrier_|_is_broken$")
         OR (KIND STREQUAL "fault" AND (NOT suite MATCHES "^(local|sweep)$" OR name MATCHES "^each_fault_point_ends_")
             AND NOT name MATCHES "^(${NETWORK_CASES})$"))
    set(local_labels local long ${suite})
    add_case("local/${name}" "${local_labels}" "${TEST_ENVIRONMENT};CMI_TEST_LOCAL=on")
  endif()
  if(KIND MATCHES "^(sim|litmus|fault|through)$" OR line MATCHES " filename=\"[^\"]*_nodes_test\\.cpp\"")
    foreach(which VARIANT BRIEF BETWEEN THREADS)
      if(NOT suite IN_LIST ${which}_SUITES)
        continue()
      endif()
      foreach(variant IN LISTS ${which}_VARIANTS)
        string(REGEX MATCH "^([^=]*)=(.*)$" ignored "${variant}")
        set(prefix "${CMAKE_MATCH_1}")
        string(REPLACE "<semicolon>" ";" value "${CMAKE_MATCH_2}")
        set(variant_labels ${prefix})
        if(KIND STREQUAL "sim")
          if(value MATCHES "CMI_TEST_FAULT")
            continue()  # simulated nodes take faults in signals alone
          endif()
          string(PREPEND prefix "sim-")
        endif()
        if(NOT "${prefix}=${suite}" IN_LIST SHORT_VARIANTS)
          list(APPEND variant_labels long)
        endif()
        add_case("${prefix}/${name}" "${variant_labels}" "${TEST_ENVIRONMENT};${value}")
      endforeach()
    endforeach()
  endif()
endforeach()
if(KIND MATCHES "^(system|fault)$")
  string(REPLACE "|" ";" network_cases "${NETWORK_CASES}")
  foreach(name IN LISTS network_cases)
    if(NOT name IN_LIST names)
      message(FATAL_ERROR "The list of ${KIND} cases that are not run mapped names ${name}: no case has that name")
    endif()
  endforeach()
endif()
file(WRITE ${CASES} "${script}")
