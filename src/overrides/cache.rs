//! stub
pub struct Cache;
