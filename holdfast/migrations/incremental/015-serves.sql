-- The agents, teams and limits of each process, so that its entries go with it.

alter table agent.process add column serves jsonb;
