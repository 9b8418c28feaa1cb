// The C entries of the function tables; documented in <cmi.h>. They lie in memory_calls.cpp,
// control_calls.cpp, segment_calls.cpp and sharing_calls.cpp.
//
// Arguments that are flat values are checked in the entry or in the context. Pointers of clients
// are read and written with no lock of the library held, because they may lie in a view.
//
// Calls that read an object of the client's do so before they block signals: it may lie in a view.
// Calls that may take a lock block the thread's signals: a client's handler that touched a view in
// the middle of one would wait for its own thread.
#pragma once

#include <cmi.h>

namespace cmi::api {

cmi_fn_atm_cas atm_cas;
cmi_fn_attr_get attr_get;
cmi_fn_cflush cflush;
cmi_fn_close_fb close_fb;
cmi_fn_cmi_ctl cmi_ctl;
cmi_fn_cmi_enb cmi_enb;
cmi_fn_evt_get evt_get;
cmi_fn_evt_ret evt_ret;
cmi_fn_fini fini;
cmi_fn_flush_fb flush_fb;
cmi_fn_ini_th ini_th;
cmi_fn_mb_fn mb_fn;
cmi_fn_open_fb open_fb;
cmi_fn_rmb_fn rmb_fn;
cmi_fn_rseg_del rseg_del;
cmi_fn_seg_at seg_at;
cmi_fn_seg_ctl seg_ctl;
cmi_fn_seg_dt seg_dt;
cmi_fn_seg_exp seg_exp;
cmi_fn_seg_get seg_get;
cmi_fn_seg_imp seg_imp;
cmi_fn_tok_del tok_del;
cmi_fn_tok_new tok_new;
cmi_fn_wmb_fn wmb_fn;
cmi_fn_seg_getva seg_getva;
cmi_fn_tok_newva tok_newva;

}  // namespace cmi::api
