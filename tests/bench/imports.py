"""Leaves out what `partita run` leaves out; a program that runs the operator imports it first."""

from partita.import_trim import import_aiohttp, leave_out_unused

leave_out_unused()
import_aiohttp()
