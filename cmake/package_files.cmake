# Run by CPack between installing the components and packing them (cmake/packages.cmake).
cmake_policy(SET CMP0057 NEW)
file(READ ${CPACK_CMI_SOURCE}/LICENSE licence)
string(REGEX REPLACE "\n\n" "\n.\n" licence "${licence}")
string(REGEX REPLACE "\n([^\n])" "\n \\1" licence "${licence}")
set(copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: libcmi
Source: the repository of libcmi

Files: *
Copyright: 2026 the libcmi authors
License: BSD-3-Clause
 ${licence}")
# The day of the last change to what has changed, so that the same sources give the same packages.
execute_process(COMMAND date --utc --reference=${CPACK_CMI_SOURCE}/CHANGELOG.md -R
  OUTPUT_VARIABLE day OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(changelog "libcmi (${CPACK_CMI_VERSION}) unstable; urgency=medium

  * What has changed is in the changelog that libcmi-doc has.

 -- ${CPACK_PACKAGE_CONTACT}  ${day}
")
foreach(pair IN LISTS CPACK_CMI_PACKAGES)
  string(REGEX MATCH "^(.*)=(.*)$" pair "${pair}")
  set(top "${CPACK_TEMPORARY_DIRECTORY}/${CMAKE_MATCH_1}/usr")
  set(folder "${top}/share/doc/${CMAKE_MATCH_2}")
  file(WRITE "${folder}/copyright" "${copyright}")
  file(WRITE "${folder}/changelog.Debian" "${changelog}")
  file(GLOB pages "${top}/share/man/man*/*.[0-9]")
  file(GLOB upstream "${folder}/changelog")
  execute_process(COMMAND gzip -9nf "${folder}/changelog.Debian" ${upstream} ${pages} COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB pages "${top}/share/man/man*/*.gz")
  file(CHMOD "${folder}/copyright" "${folder}/changelog.Debian.gz" ${pages}
    PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  file(GLOB_RECURSE folders LIST_DIRECTORIES true "${top}/*")
  foreach(each IN LISTS folders top ITEMS "${CPACK_TEMPORARY_DIRECTORY}/${CMAKE_MATCH_1}/usr")
    if(IS_DIRECTORY "${each}")
      file(CHMOD "${each}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
        GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
    endif()
  endforeach()
endforeach()
